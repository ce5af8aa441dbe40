//! A master whose clock is stepped: libfaketime stands between it and the system's clock.

mod views;

mod clock {
    mod faked;
    mod guard;
    mod steps;
}
