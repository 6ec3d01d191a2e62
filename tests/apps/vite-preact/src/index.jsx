import { render } from "preact";

render(<h1>Hello from Preact</h1>, document.getElementById("app"));
