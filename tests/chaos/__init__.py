"""`make chaos`: what a live system keeps when its parts are killed and stopped, judged from outside."""
