export const actions = {
  default: async ({ request }) => {
    const form = await request.formData();
    return { name: form.get("name") };
  },
};
