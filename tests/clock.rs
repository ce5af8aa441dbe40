//! A master whose clock is stepped: libfaketime stands between it and the system's clock.

mod common;
mod views;

mod clock {
    mod faked;
    mod guard;
    mod steps;
}
