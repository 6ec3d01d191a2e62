//! Requests to a server that loses what it was about to answer: what is sent again, and what comes of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use estrade_client::{Client, ClientError};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What comes of one attempt.
#[derive(Clone, Copy)]
enum Reply {
    Whole(u16, &'static str),
    /// A head that promises more than comes.
    CutOff,
    HangUp,
    Silence,
}

/// A server that replies so to one connection after the other, and then as to the last one; the requests' lines and
/// idempotency keys.
fn serve(replies: &'static [Reply]) -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let reply = replies[number.min(replies.len() - 1)];
            requests.lock().unwrap().push(read_request(&stream));
            answer(&stream, reply);
            if matches!(reply, Reply::Silence) {
                open.push(stream);
            }
        }
    });
    (Client::new(&url, None, None).unwrap(), seen)
}

fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut line, mut key, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line).unwrap();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        match name {
            "idempotency-key" => value.trim().clone_into(&mut key),
            "content-length" => length = value.trim().parse().unwrap(),
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    format!("{} {key}", line.trim_end())
}

fn answer(mut stream: &TcpStream, reply: Reply) {
    let text = match reply {
        Reply::Whole(status, body) => format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
        Reply::CutOff => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"a\":".to_owned(),
        Reply::HangUp | Reply::Silence => String::new(),
    };
    stream.write_all(text.as_bytes()).unwrap();
}

const DONE: Reply = Reply::Whole(200, "{\"a\":1}");

#[tokio::test]
async fn a_response_that_breaks_off_is_asked_for_again() {
    let (client, seen) = serve(&[Reply::CutOff, Reply::CutOff, DONE]);
    assert_eq!(client.get::<Value>("/x").await.unwrap()["a"], 1);
    assert_eq!(seen.lock().unwrap().len(), 3);

    let (client, seen) = serve(&[Reply::CutOff, DONE]);
    let made: Value = client.post("/x", &json!({"b": 2})).await.unwrap();
    assert_eq!(made["a"], 1);
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() == 2 && seen[0] == seen[1], "{seen:?}");
    assert!(seen[0].contains(" estrade-"), "{seen:?}");

    // Neither for ever, nor when it would be carried out twice.
    let (client, seen) = serve(&[Reply::CutOff]);
    let broken = client.get::<Value>("/x").await.unwrap_err();
    assert!(matches!(broken, ClientError::Unreachable { .. }));
    assert_eq!(seen.lock().unwrap().len(), 4);
    let (client, seen) = serve(&[Reply::CutOff]);
    let request = client.request(Method::POST, "/x").without_key();
    request.json::<Value>().await.unwrap_err();
    assert_eq!(seen.lock().unwrap().len(), 1);
    let (client, seen) = serve(&[Reply::CutOff]);
    let request = client.request(Method::GET, "/x").once();
    request.json::<Value>().await.unwrap_err();
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_times_out_is_sent_once_more() {
    let soon = Some(Duration::from_millis(300));
    for method in [Method::GET, Method::POST] {
        let (client, seen) = serve(&[Reply::Silence, DONE]);
        let request = client.request(method, "/x").timeout(soon);
        assert_eq!(request.json::<Value>().await.unwrap()["a"], 1);
        assert_eq!(seen.lock().unwrap().len(), 2);
    }
    let (client, seen) = serve(&[Reply::Silence]);
    let request = client.request(Method::GET, "/x").timeout(soon);
    let late = request.json::<Value>().await.unwrap_err();
    assert!(matches!(late, ClientError::TimedOut { .. }));
    assert_eq!(seen.lock().unwrap().len(), 2);
    let (client, seen) = serve(&[Reply::Silence]);
    let request = client.request(Method::POST, "/x").without_key();
    request.timeout(soon).json::<Value>().await.unwrap_err();
    assert_eq!(seen.lock().unwrap().len(), 1);
}

/// A change that is neither of its nature the same twice nor has a key.
#[tokio::test]
async fn what_may_have_been_done_is_not_done_again() {
    for reply in [Reply::HangUp, Reply::Whole(502, ""), Reply::Whole(504, "")] {
        let replies: &'static [Reply] = Vec::leak(vec![reply, DONE]);
        for method in [Method::PATCH, Method::POST] {
            let (client, seen) = serve(replies);
            let request = client.request(method, "/x").without_key();
            request.json::<Value>().await.unwrap_err();
            assert_eq!(seen.lock().unwrap().len(), 1);
        }
        for method in [Method::PUT, Method::POST] {
            let (client, seen) = serve(replies);
            client.request(method, "/x").send().await.unwrap();
            assert_eq!(seen.lock().unwrap().len(), 2);
        }
    }
    // The server says that it did nothing.
    let (client, seen) = serve(&[Reply::Whole(503, ""), DONE]);
    client.request(Method::PATCH, "/x").send().await.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_an_earlier_attempt_deleted_is_deleted() {
    for replies in [
        &[Reply::HangUp, Reply::Whole(404, "")],
        &[Reply::Whole(502, ""), Reply::Whole(404, "")],
    ] {
        let (client, seen) = serve(replies);
        client.delete("/x").await.unwrap();
        assert_eq!(seen.lock().unwrap().len(), 2);
    }
    // It never was there.
    for replies in [
        &[Reply::Whole(404, "")][..],
        &[Reply::Whole(503, ""), Reply::Whole(404, "")],
    ] {
        let (client, _) = serve(replies);
        let refused = client.delete("/x").await.unwrap_err();
        assert_eq!(refused.refusal().unwrap().status, 404);
    }
}
