import gradio

with gradio.Blocks(title="Hello from Gradio") as demo:
    gradio.Markdown("# Hello from Gradio")

demo.launch()
