//! Never compiled, because the build script fails.
