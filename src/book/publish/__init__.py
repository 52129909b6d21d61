"""Turns the chapters into what people receive: executed notebooks, the site, the slides, the copies for students."""
