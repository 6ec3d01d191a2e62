export default function Page() {
  return <h1>Hello from Next.js</h1>;
}
