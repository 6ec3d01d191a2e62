import { Component, provideZonelessChangeDetection } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";

@Component({
  selector: "app-root",
  template: "<h1>Hello from the browser builder</h1>",
})
class App {}

bootstrapApplication(App, { providers: [provideZonelessChangeDetection()] });
