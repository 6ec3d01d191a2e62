import * as React from "react";

export default function NotFound() {
  return <h1>No such page in Gatsby</h1>;
}
