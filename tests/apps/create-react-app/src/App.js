export default function App() {
  return <h1>Hello from Create React App</h1>;
}
