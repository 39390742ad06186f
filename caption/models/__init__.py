"""Loading of models by name: those installed with the package, those of the Hugging Face Hub, and ensembles."""
