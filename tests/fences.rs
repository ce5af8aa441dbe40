//! Fences on real masters: they grow from holder to holder, and each node keeps the highest one.

mod common;
mod views;

mod fences {
    mod growth;
    mod processes;
    mod record;
    mod support;
}
