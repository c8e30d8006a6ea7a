//! The kernel's figures of a TCP connection (TCP_INFO): the round trip, and the bytes on their way.

#![forbid(unsafe_code)]

use std::os::fd::AsFd;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;

/// The beginning of the kernel's `struct tcp_info`. Linux 4.9 and later fill it in, and cut the rest off.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct TcpInfo {
    state: [u32; 4],
    /// Bytes of data in a segment.
    segment_bytes: u32,
    received_segment_bytes: u32,
    /// Segments that the other end has not acknowledged.
    unacknowledged_segments: u32,
    other: [u32; 29],
    /// Bytes that have not been sent for the first time.
    unsent_bytes: u32,
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

/// Returns the bytes that the kernel has and the other end has not acknowledged; rather too many than too few. Returns `None` for
/// sockets other than TCP.
#[must_use]
pub fn bytes_on_way(socket: impl AsFd) -> Option<u64> {
    let info = getsockopt(&socket, MeasuredTcp).ok()?;
    let sent = u64::from(info.unacknowledged_segments) * u64::from(info.segment_bytes);
    Some(sent + u64::from(info.unsent_bytes))
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
    fn bytes_that_the_other_end_has_no_room_for_are_on_their_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(len) = client.write(&[0; 65536]) {
            written += len;
        }
        let begun = bytes_on_way(&client).unwrap();
        assert!(begun > 0 && begun < 2 * written as u64, "{begun} of {written}");
        server.read_exact(&mut vec![0; written]).unwrap();
        server.write_all(b"x").unwrap();
        client.set_nonblocking(false).unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert_eq!(bytes_on_way(&client), Some(0));
    }

    #[test]
    fn a_unix_socket_has_no_measurement() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!((min_round_trip_us(&socket), bytes_on_way(&socket)), (None, None));
    }
}
