//! A way to a server that is far away.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// A port that leads to another of this machine, and on which every answer takes so long; questions are quick.
pub fn slow_way(to: u16, delay: Duration) -> u16 {
    way(to, Duration::ZERO, delay)
}

/// The same, on which every 64 KiB of a question take so long; answers are quick.
pub fn narrow_way(to: u16, delay: Duration) -> u16 {
    way(to, delay, Duration::ZERO)
}

fn way(to: u16, forth_delay: Duration, back_delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let carry = |mut from: TcpStream, mut to: TcpStream, delay: Duration| {
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                std::thread::sleep(delay);
                if to.write_all(&bytes[..read]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { return };
            let (back, forth) = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
            carry(near, forth, forth_delay);
            carry(far, back, back_delay);
        }
    });
    port
}
