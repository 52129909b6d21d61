"""What the chapters need to teach: predictions, pictures, sliders, exercises. Imports lib, never the other way."""
