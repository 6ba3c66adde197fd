"""Where people already are: callbacks for Transformers, Lightning and Accelerate. Each needs its library."""
