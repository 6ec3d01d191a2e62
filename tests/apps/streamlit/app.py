import streamlit

streamlit.set_page_config(page_title="Hello from Streamlit")
streamlit.title("Hello from Streamlit")
