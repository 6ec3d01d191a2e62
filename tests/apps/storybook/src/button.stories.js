export default { title: "Button" };

export const Plain = () => "<button>Hello</button>";
