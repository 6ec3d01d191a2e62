//! A DNS server of the test's own.

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, CNAME, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Answers from records that the test sets; every name has the address 127.0.0.1.
pub struct DnsServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Zone {
    records: HashMap<String, Vec<RData>>,
    questions: Vec<String>,
    silent: bool,
}

impl DnsServer {
    /// Starts on a free port.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let address = socket.local_addr().expect("its address");
        let zone = Arc::<Mutex<Zone>>::default();
        let mut task = JoinSet::new();
        task.spawn(serve(socket, Arc::clone(&zone)));
        Self {
            address,
            zone,
            _task: task,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a TXT record of several strings.
    pub fn add_txt(&self, name: &str, strings: &[&str]) {
        let strings = strings.iter().map(ToString::to_string).collect();
        self.add(name, RData::TXT(TXT::new(strings)));
    }

    /// Adds a CNAME record.
    pub fn add_cname(&self, name: &str, target: &str) {
        let target = Name::from_ascii(target).expect("a name");
        self.add(name, RData::CNAME(CNAME(target)));
    }

    fn add(&self, name: &str, data: RData) {
        let name = name.to_ascii_lowercase();
        self.zone().records.entry(name).or_default().push(data);
    }

    /// Removes the records of a name.
    pub fn remove(&self, name: &str) {
        self.zone().records.remove(name);
    }

    /// Whether questions stay unanswered.
    pub fn set_silent(&self, silent: bool) {
        self.zone().silent = silent;
    }

    /// How often anything about this name was asked.
    pub fn questions(&self, name: &str) -> usize {
        let zone = self.zone();
        zone.questions.iter().filter(|it| *it == name).count()
    }

    fn zone(&self) -> MutexGuard<'_, Zone> {
        self.zone.lock().expect("a zone")
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut packet = [0; 4096];
    // A question that cannot be read is not answered, as by any server.
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        let Ok(question) = Message::from_vec(&packet[..length]) else {
            continue;
        };
        let answer = zone.lock().expect("a zone").answer(&question);
        if let Some(answer) = answer {
            let bytes = answer.to_vec().expect("an answer");
            socket.send_to(&bytes, from).await.expect("to answer");
        }
    }
}

impl Zone {
    fn answer(&mut self, question: &Message) -> Option<Message> {
        let query = question.queries.first()?;
        let name = query.name().to_ascii().to_ascii_lowercase();
        let name = name.trim_end_matches('.');
        self.questions.push(name.to_owned());
        if self.silent {
            return None;
        }
        let mut answer = Message::new(
            question.metadata.id,
            MessageType::Response,
            question.metadata.op_code,
        );
        answer.metadata.recursion_desired = question.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        let of_type = |data: &&RData| data.record_type() == query.query_type();
        let known = self.records.get(name);
        let mut found: Vec<RData> = known
            .into_iter()
            .flatten()
            .filter(of_type)
            .cloned()
            .collect();
        if query.query_type() == RecordType::A {
            found.push(RData::A(A(Ipv4Addr::LOCALHOST)));
        } else if known.is_none() && query.query_type() != RecordType::AAAA {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        for data in found {
            answer.add_answer(Record::from_rdata(query.name().clone(), 60, data));
        }
        Some(answer)
    }
}
