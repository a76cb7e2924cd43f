//! The streams between the leaders of hosts: TCP, each with each, with a secret of the job that MPI has handed over.

use super::spread::Spread;
use ringwork_mpi::World;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SECRET_BYTES: usize = 32;
/// Port, number of addresses, addresses.
const ADDRESSES: usize = 12;
const CARD_BYTES: usize = 3 + 4 * ADDRESSES;
/// How long the leaders may take to connect.
const LIMIT: Duration = Duration::from_secs(20);
const TEXT_BYTES: usize = 512;

/// What one leader tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The host is there.
    Here,
    /// A process died.
    Died { process: u32, cause: String },
    /// The communicator with this tag was aborted.
    Aborted { tag: u32, reason: String },
    /// The leader is in no communicator any more, and may end.
    Bye,
    /// It is in one again.
    Back,
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let (kind, number, text) = match self {
            Frame::Here => (0u8, 0, ""),
            Frame::Died { process, cause } => (1, *process, &cause[..]),
            Frame::Aborted { tag, reason } => (2, *tag, &reason[..]),
            Frame::Bye => (3, 0, ""),
            Frame::Back => (4, 0, ""),
        };
        let text = &text.as_bytes()[..text.len().min(TEXT_BYTES)];
        let mut bytes = vec![kind];
        bytes.extend(number.to_le_bytes());
        bytes.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(text);
        bytes
    }

    fn read(stream: &mut impl Read) -> std::io::Result<Frame> {
        let mut head = [0u8; 7];
        stream.read_exact(&mut head)?;
        let [kind, a, b, c, d, low, high] = head;
        let number = u32::from_le_bytes([a, b, c, d]);
        let len = usize::from(u16::from_le_bytes([low, high]));
        let mut text = vec![0; len.min(TEXT_BYTES)];
        stream.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        match kind {
            0 => Ok(Frame::Here),
            1 => Ok(Frame::Died {
                process: number,
                cause: text,
            }),
            2 => Ok(Frame::Aborted {
                tag: number,
                reason: text,
            }),
            3 => Ok(Frame::Bye),
            4 => Ok(Frame::Back),
            _ => Err(std::io::Error::other("not a frame")),
        }
    }
}

/// The other leader of a stream.
struct Peer {
    /// Its process, and the name of its host.
    process: u32,
    host: String,
    stream: TcpStream,
    /// Taken to write, so that frames stay whole.
    writing: Mutex<()>,
}

/// A leader's streams to all others.
pub(super) struct Streams {
    peers: Vec<Arc<Peer>>,
}

impl Streams {
    /// Connects the leaders; all processes call it, and only leaders get something.
    pub(super) fn connect(
        world: &World,
        spread: &Spread,
        silence: Duration,
    ) -> Result<Option<Streams>, String> {
        let mut secret = [0u8; SECRET_BYTES];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
        random.map_err(|error| format!("/dev/urandom: {error}"))?;
        world.broadcast(&mut secret).map_err(|error| error.to_string())?;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0));
        let card = card(listener.as_ref().ok());
        let cards = world.all_gather(&card).map_err(|error| error.to_string())?;
        if !spread.leads() {
            return Ok(None);
        }
        let listener = listener.map_err(|error| error.to_string())?;
        let deadline = Instant::now() + LIMIT;
        let mut peers = Vec::new();
        for (index, host) in spread.others() {
            let process = spread.members[host.ranks[0] as usize].process;
            // The later host connects.
            if index < spread.mine {
                let card = &cards[process as usize * CARD_BYTES..][..CARD_BYTES];
                let stream = call(card, &secret, spread.mine, deadline)
                    .ok_or_else(|| format!("host {} cannot be reached by TCP", host.name))?;
                peers.push((index, stream));
            }
        }
        listener
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
        let later = spread.hosts.len() - 1 - spread.mine;
        while peers.len() < spread.mine + later {
            if let Some((index, stream)) = answer(&listener, &secret, deadline)? {
                let known = peers.iter().any(|(known, _)| *known == index);
                if !known && index > spread.mine && index < spread.hosts.len() {
                    peers.push((index, stream));
                }
            }
        }
        let peer = |(index, stream): (usize, TcpStream)| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(silence))?;
            stream.set_write_timeout(Some(silence))?;
            let host = &spread.hosts[index];
            Ok(Arc::new(Peer {
                process: spread.members[host.ranks[0] as usize].process,
                host: host.name.clone(),
                stream,
                writing: Mutex::default(),
            }))
        };
        let peers: std::io::Result<Vec<Arc<Peer>>> = peers.into_iter().map(peer).collect();
        let peers = peers.map_err(|error| error.to_string())?;
        Ok(Some(Streams { peers }))
    }

    /// Tells all other leaders.
    pub(super) fn say(&self, frame: &Frame) {
        for peer in &self.peers {
            peer.say(frame);
        }
    }

    /// Hears the other leaders, and says ten times in every `silence` that this host is there.
    pub(super) fn listen(
        &self,
        silence: Duration,
        hear: impl Fn(Frame) + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        for peer in &self.peers {
            let (peer, hear) = (Arc::clone(peer), hear.clone());
            let thread = std::thread::Builder::new().name("ringwork-hears".into());
            thread.spawn(move || peer.hear(silence, &hear))?;
        }
        let peers = self.peers.clone();
        let thread = std::thread::Builder::new().name("ringwork-beats".into());
        thread.spawn(move || {
            loop {
                peers.iter().for_each(|peer| peer.say(&Frame::Here));
                std::thread::park_timeout(silence / 10);
            }
        })?;
        Ok(())
    }
}

impl Peer {
    /// If the stream is broken, its reader learns it.
    fn say(&self, frame: &Frame) {
        let _whole = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = (&self.stream).write_all(&frame.bytes());
    }

    fn hear(&self, silence: Duration, hear: &impl Fn(Frame)) {
        let mut may_end = false;
        loop {
            match Frame::read(&mut &self.stream) {
                Ok(Frame::Bye) => may_end = true,
                Ok(Frame::Back) => may_end = false,
                Ok(Frame::Here) => {}
                Ok(frame) => hear(frame),
                Err(_) if may_end => return,
                Err(error) => {
                    let silent = matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    );
                    let cause = if silent {
                        let ms = silence.as_millis();
                        format!(
                            "host {} said nothing for {ms} ms: it is dead or cut off",
                            self.host
                        )
                    } else {
                        format!("its process on host {} ended", self.host)
                    };
                    let process = self.process;
                    return hear(Frame::Died { process, cause });
                }
            }
        }
    }
}

/// Where this process answers: its port and the addresses of this host.
fn card(listener: Option<&TcpListener>) -> [u8; CARD_BYTES] {
    let mut card = [0u8; CARD_BYTES];
    let port = listener.and_then(|listener| listener.local_addr().ok());
    card[..2].copy_from_slice(&port.map_or(0, |address| address.port()).to_le_bytes());
    let addresses = addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default());
    for (room, address) in card[3..].chunks_exact_mut(4).zip(&addresses) {
        room.copy_from_slice(&address.octets());
    }
    card[2] = u8::try_from(addresses.len().min(ADDRESSES)).unwrap_or(0);
    card
}

/// The addresses of this host in the kernel's table of routes: those that are `/32 host LOCAL`, without loopback.
fn addresses(table: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut last = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.contains("host LOCAL")
            && let Some(address) = last.filter(|address| !address.is_loopback())
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Connects to a leader, at the first of its addresses where it answers.
fn call(card: &[u8], secret: &[u8], mine: usize, deadline: Instant) -> Option<TcpStream> {
    let port = u16::from_le_bytes([card[0], card[1]]);
    let addresses = card[3..].chunks_exact(4).take(usize::from(card[2]));
    let addresses: Vec<SocketAddr> = addresses
        .map(|octets| SocketAddr::from(([octets[0], octets[1], octets[2], octets[3]], port)))
        .collect();
    while Instant::now() < deadline {
        for address in &addresses {
            if let Ok(stream) = greet(address, secret, mine) {
                return Some(stream);
            }
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    None
}

fn greet(address: &SocketAddr, secret: &[u8], mine: usize) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(secret)?;
    stream.write_all(&u32::try_from(mine).unwrap_or(u32::MAX).to_le_bytes())?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// Takes a caller that knows the secret, and the number of its host.
fn answer(
    listener: &TcpListener,
    secret: &[u8],
    deadline: Instant,
) -> Result<Option<(usize, TcpStream)>, String> {
    let Ok((mut stream, _)) = listener.accept() else {
        if Instant::now() > deadline {
            let ms = LIMIT.as_millis();
            return Err(format!("a host did not connect by TCP within {ms} ms"));
        }
        std::thread::park_timeout(Duration::from_millis(2));
        return Ok(None);
    };
    let mut greeting = [0u8; SECRET_BYTES + 4];
    let heard = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(Duration::from_secs(2))))
        .and_then(|()| stream.read_exact(&mut greeting));
    let (given, index) = greeting.split_at(SECRET_BYTES);
    // A stranger: it is hung up on.
    if heard.is_err() || given != secret || stream.write_all(&[1]).is_err() {
        return Ok(None);
    }
    let index = u32::from_le_bytes([index[0], index[1], index[2], index[3]]);
    Ok(Some((index as usize, stream)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_trip_and_long_texts_are_cut() {
        let died = Frame::Died {
            process: 7,
            cause: "x".repeat(TEXT_BYTES),
        };
        let aborted = Frame::Aborted {
            tag: 4,
            reason: "shrinking".into(),
        };
        for frame in [Frame::Here, died, aborted, Frame::Bye, Frame::Back] {
            assert_eq!(Frame::read(&mut &frame.bytes()[..]).unwrap(), frame);
        }
        let long = Frame::Aborted {
            tag: 0,
            reason: "x".repeat(9999),
        };
        assert_eq!(long.bytes().len(), 7 + TEXT_BYTES);
        assert!(Frame::read(&mut &[9u8; 7][..]).is_err());
    }

    #[test]
    fn addresses_are_those_of_this_host_without_loopback() {
        let table = "Local:\n  +-- 10.77.0.0/24 2 0 2\n     |-- 10.77.0.1\n        /32 host LOCAL\n     |-- 10.77.0.255\n        /32 link \
                     BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(addresses(table), [Ipv4Addr::new(10, 77, 0, 1)]);
    }
}
