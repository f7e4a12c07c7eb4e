//! Which ports something listens on, on the machine where the client runs.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Those of the ports that can't be listened on. Nobody is disturbed: what is opened is closed at once.
pub fn taken(ports: impl IntoIterator<Item = u16>) -> Vec<u16> {
    ports.into_iter().filter(|port| is_taken(*port)).collect()
}

fn is_taken(port: u16) -> bool {
    let everywhere = [SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))];
    // A machine may have no IPv6: only "in use" counts.
    everywhere.iter().any(|address| TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_listens_on_is_seen_whatever_the_address() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).expect("a port");
            let port = listener.local_addr().expect("an address").port();
            assert_eq!(taken([port]), [port], "{address}");
            drop(listener);
            assert!(taken([port]).is_empty(), "{address}");
        }
    }
}
