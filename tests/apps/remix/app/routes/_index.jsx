export const meta = () => [{ title: "Hello from Remix" }];

export default function Index() {
  return <h1>Hello from Remix</h1>;
}
