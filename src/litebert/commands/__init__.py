"""The command line's side of each public function: which options it adds, and how the result is printed."""
