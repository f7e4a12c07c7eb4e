//! The least that a hook can be: connects to a socket, writes a line, reads one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other("usage: bare-call SOCKET LINE"));
    };
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    print!("{answer}");
    Ok(())
}
