from langchain_model import make_model
from script import serve

serve("langchain_agent", make_model)
