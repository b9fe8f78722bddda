"""Methods that order tools by outcomes, one a module, each as it was published."""
