//! The local masters and the proxy do what their pages say, on real servers.

mod testing {
    mod client;
    mod masters;
    mod proxy;
}
