"""Co-attention, mechanisms with two inputs: the regions and the words so far attend to each other.

words           the features of the words so far
base            the base class; affinity: the base class of those that compare each region with each word
parallel        both sides at once, through their affinity; the maximum form
alternating     one side after the other
interactive     each side with the mean of the other
symmetric       each side attends to the other, element by element (COSNet)
mutual          each side is reweighted by its correlation with the other
"""
