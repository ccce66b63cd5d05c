//! Attribute macros with which compiler passes are written for niello.
