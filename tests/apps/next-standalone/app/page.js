export default function Page() {
  return <h1>Hello from a standalone Next.js</h1>;
}
