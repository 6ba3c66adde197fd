"""Changes tried on an unchanged program, and measured.

In: a command (`running.Program`) and what to try (`search.Plan`). Out: `document.TryDocument`.

A process of the program (`child`) installs the hooks of its `changes`, runs the script, and stands still between its
turns (`running`), so that two programs can be timed in turns (`turns`) without starting anew. `ratio` makes an interval
of the turns, `curves` compares the losses, and `search` decides what is tried next.
"""
