import * as React from "react";

export default function Index() {
  return <h1>Hello from Gatsby</h1>;
}

export const Head = () => <title>Hello from Gatsby</title>;
