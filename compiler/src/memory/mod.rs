//! Memory planning: which value lives where in the workspace.
