//! The kernel's measurement of a connection's round trip (TCP_INFO). The server and the proxy measure the network with it.

#![forbid(unsafe_code)]

use std::os::fd::AsFd;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;

/// The beginning of the kernel's `struct tcp_info`. Linux 4.9 and later fill it in, and cut the rest off.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct TcpInfo {
    other: [u32; 37],
    /// The minimum round trip of the last minutes, in microseconds; the largest number if there is no measurement.
    min_rtt_us: u32,
}

/// TCP_INFO.
#[derive(Clone, Copy, Debug)]
struct MeasuredTcp;

nix::getsockopt_impl!(MeasuredTcp, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo, GetStruct<TcpInfo>);

/// Returns the minimum round trip of a TCP connection, in microseconds. Returns `None` for other sockets, and before the
/// first measurement.
#[must_use]
pub fn min_round_trip_us(socket: impl AsFd) -> Option<u32> {
    let info = getsockopt(&socket, MeasuredTcp).ok()?;
    (info.min_rtt_us != u32::MAX).then_some(info.min_rtt_us)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_loopback_connection_has_a_short_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..10 {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            server.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        let us = min_round_trip_us(&server).unwrap();
        assert!(us < 100_000, "{us}");
    }

    #[test]
    fn a_unix_socket_has_no_measurement() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(min_round_trip_us(&socket), None);
    }
}
