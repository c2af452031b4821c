"""Activities: everything that touches the world, such as the model, the gates, the tools and the directory of
people.
"""
