//! Server-sent events on their way to the client.
//!
//! Forwards whole events only, so that a keep-alive comment or an error event can be inserted between two of them.
//! Reads the usage, renames the model, and hides the usage event that the gateway requested and the client did not.
//! Events that match the `EventTemplate` of an earlier one skip the JSON scan.

use crate::streaming::event_template::EventTemplate;
use crate::streaming::model_name::replace;
use crate::streaming::response_scanner::ResponseScanner;
use bytes::{Bytes, BytesMut};
use estrade_model::call::Tokens;
use std::collections::VecDeque;
use std::ops::Range;

/// A longer event is forwarded in pieces: memory per stream stays bounded.
const MAX_PENDING_EVENT: usize = 256 * 1024;

/// How a line begins that has data.
const DATA: &[u8] = b"data:";

/// The events of one response.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the state of a small machine, where nearly all combinations occur"
)]
pub(crate) struct EventStream {
    /// The beginning of an event that has not ended.
    held: BytesMut,
    /// Prefix of `held` that was searched already: an event that comes byte by byte costs linear time.
    searched: usize,
    /// Whether the beginning of an unfinished event is out already.
    is_partly_sent: bool,
    /// Whether the usage event is hidden from the client.
    hide_usage: bool,
    /// The client's id of the model, as JSON; none: the provider's name is kept.
    model: Option<Bytes>,
    usage: Option<Tokens>,
    /// Whether that was in an event of its own, which is the last one.
    final_usage: bool,
    content_bytes: u64,
    done: bool,
    template: EventTemplate,
}

impl EventStream {
    pub(crate) fn new(hide_usage: bool, model: Option<Bytes>) -> Self {
        Self {
            hide_usage,
            model,
            ..Self::default()
        }
    }

    /// Whether the next part may match the template.
    pub(crate) fn may_match_template(&self) -> bool {
        self.held.is_empty() && self.template.is_known()
    }

    /// Counts a part if it is one event that matches the template; it can be forwarded without a scan then.
    pub(crate) fn match_template(&mut self, part: &[u8]) -> bool {
        let content_bytes = if self.held.is_empty() {
            self.template.match_event(part)
        } else {
            None
        };
        self.content_bytes += content_bytes.unwrap_or_default();
        content_bytes.is_some()
    }

    /// The rewritten pieces of a part that has just matched the template; none: the part as it is.
    pub(crate) fn rewrite<'e>(&'e self, part: &'e [u8]) -> Option<[&'e [u8]; 3]> {
        self.template.rewrite(part)
    }

    /// Parses a part; events that are complete are added to `out`.
    pub(crate) fn feed(&mut self, part: Bytes, out: &mut VecDeque<Bytes>) {
        if self.match_template(&part) {
            let rewritten = self.rewrite(&part).map(|pieces| pieces.concat());
            return out.push_back(rewritten.map_or(part, Bytes::from));
        }
        let part = if self.held.is_empty() {
            part
        } else {
            // Appended in place: a provider that sends an event byte by byte costs no more than others.
            self.held.extend_from_slice(&part);
            if event_end(&self.held, self.searched).is_none() {
                return self.hold_back(out);
            }
            self.held.split().freeze()
        };
        let searched = std::mem::take(&mut self.searched);
        // From `kept` to `at` are whole events that go out as they are.
        let (mut kept, mut at) = (0, 0);
        while let Some(end) = event_end(&part, at.max(searched)) {
            let verdict = self.read_event(&part[at..end]);
            if verdict != Verdict::Pass {
                push(out, part.slice(kept..at));
                kept = end;
            }
            if let Verdict::Replace(event) = verdict {
                out.push_back(event);
            }
            at = end;
        }
        if kept == 0 && at == part.len() {
            return push(out, part);
        }
        push(out, part.slice(kept..at));
        if at < part.len() {
            self.held.extend_from_slice(&part[at..]);
            self.hold_back(out);
        }
    }

    /// Buffers an event until its end, unless it is very long.
    fn hold_back(&mut self, out: &mut VecDeque<Bytes>) {
        // An end has at most four bytes: the last three may be the beginning of one.
        self.searched = self.held.len().saturating_sub(3);
        if self.held.len() > MAX_PENDING_EVENT {
            self.content_bytes += self.searched as u64;
            let piece = self.held.split_to(self.searched).freeze();
            let is_first = !std::mem::replace(&mut self.is_partly_sent, true);
            let edit = is_first.then(|| self.edit(&piece, EventFields::read(&piece).model));
            out.push_back(match edit.flatten() {
                None => piece,
                Some((span, id)) => replace(&piece, span, id),
            });
            self.searched = 0;
        }
    }

    /// The stream has ended regularly: flushes what was held back.
    pub(crate) fn finish(&mut self, out: &mut VecDeque<Bytes>) {
        let rest = self.held.split().freeze();
        if rest.is_empty() {
            return;
        }
        match self.read_event(&rest) {
            Verdict::Pass => out.push_back(rest),
            Verdict::Replace(event) => out.push_back(event),
            Verdict::Hide => {}
        }
    }

    /// Scans an event and decides what is forwarded of it.
    fn read_event(&mut self, event: &[u8]) -> Verdict {
        if std::mem::take(&mut self.is_partly_sent) {
            return Verdict::Pass;
        }
        if let Some(content_bytes) = self.template.match_event(event) {
            self.content_bytes += content_bytes;
            let rewritten = self.template.rewrite(event);
            return rewritten.map_or(Verdict::Pass, |it| Verdict::Replace(it.concat().into()));
        }
        let EventFields {
            scan,
            data,
            lines,
            is_end,
            model,
        } = EventFields::read(event);
        self.done |= is_end;
        let edit = self.edit(event, model);
        let verdict = match &edit {
            _ if self.hide_usage && scan.is_usage_only() => Verdict::Hide,
            None => Verdict::Pass,
            Some((span, id)) => Verdict::Replace(replace(event, span.clone(), id)),
        };
        if let (1, false, Some(content_span)) = (lines, scan.has_usage(), scan.content_span()) {
            let place = data + content_span.start..data + content_span.end;
            let edit = edit.map(|(span, id)| (span, id.to_vec()));
            let edit = edit.as_ref().map(|(span, id)| (span.clone(), &id[..]));
            self.template
                .learn(event, place, scan.content_bytes(), edit);
        }
        self.content_bytes += scan.content_bytes();
        let usage = scan.usage();
        self.final_usage |= usage.is_some() && scan.is_usage_only();
        self.usage = usage.or(self.usage);
        verdict
    }

    /// The edit that replaces the provider's name of the model, if the event has one that differs.
    fn edit(&self, event: &[u8], model: Option<Range<usize>>) -> Option<(Range<usize>, &[u8])> {
        let (span, id) = (model?, self.model.as_deref()?);
        (event.get(span.clone()) != Some(id)).then_some((span, id))
    }

    /// Whether an event may be inserted: no part of an unfinished one was sent.
    pub(crate) fn is_between_events(&self) -> bool {
        !self.is_partly_sent
    }

    /// Whether the end was announced.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// The same when nothing more comes: what was held back counts, although its own end is missing.
    pub(crate) fn is_complete(&self) -> bool {
        let mut lines = self.held.as_ref().split(|byte: &u8| *byte == b'\n');
        self.done || lines.any(|line| line.strip_prefix(DATA).is_some_and(is_end))
    }

    /// Whether the usage of all of it was reported.
    pub(crate) fn has_final_usage(&self) -> bool {
        self.final_usage
    }

    /// The usage, if one was reported.
    pub(crate) fn usage(&self) -> Option<Tokens> {
        self.usage
    }

    /// Bytes of generated content so far.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }
}

/// How an event is forwarded.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Forwarded as it is.
    Pass,
    /// Not forwarded.
    Hide,
    /// Replaced by this.
    Replace(Bytes),
}

/// What is read of an event.
#[derive(Default)]
struct EventFields {
    scan: ResponseScanner,
    /// Where the last line of data begins, and how many there are.
    data: usize,
    lines: usize,
    /// Whether it is the `[DONE]` that ends the stream.
    is_end: bool,
    /// Where the model's name is, with its quotes.
    model: Option<Range<usize>>,
}

impl EventFields {
    fn read(event: &[u8]) -> Self {
        let mut fields = Self::default();
        let mut lines = event;
        while !lines.is_empty() {
            let end = memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1);
            if let Some(data) = lines[..end].strip_prefix(DATA) {
                fields.is_end |= is_end(data);
                let at = event.len() - lines.len() + DATA.len();
                (fields.data, fields.lines) = (at, fields.lines + 1);
                fields.scan.feed(data);
                if let Some(span) = fields.scan.model().whole() {
                    fields.model = Some(at + span.start..at + span.end);
                }
            }
            lines = &lines[end..];
        }
        fields
    }
}

/// Whether data is the `[DONE]` that ends the stream.
fn is_end(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]"
}

fn push(out: &mut VecDeque<Bytes>, bytes: Bytes) {
    if !bytes.is_empty() {
        out.push_back(bytes);
    }
}

/// Where the event ends that lies at `from`: behind its empty line.
fn event_end(part: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = part.get(at..)?;
        at += memchr::memchr(b'\n', rest)? + 1;
        match part.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}],\"usage\":null}\n\n\
        : a comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\r\n\r\n\
        event: x\ndata: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n\
        data: [DONE]\n\n";

    fn pass(parts: &[&str], hide: bool) -> (String, EventStream) {
        let (mut events, mut out) = (EventStream::new(hide, None), VecDeque::new());
        for part in parts {
            events.feed(Bytes::copy_from_slice(part.as_bytes()), &mut out);
        }
        events.finish(&mut out);
        let text = out
            .into_iter()
            .map(|b| String::from_utf8(b.to_vec()).unwrap());
        (text.collect(), events)
    }

    #[test]
    fn a_stream_is_read_the_same_wherever_it_is_split() {
        let start = STREAM.find("event:").unwrap();
        let end = STREAM.find("data: [DONE]").unwrap();
        let hidden = format!("{}{}", &STREAM[..start], &STREAM[end..]);
        for hide in [true, false] {
            for one in 0..STREAM.len() {
                for two in [
                    one,
                    (one + 1).min(STREAM.len()),
                    (one + 40).min(STREAM.len()),
                ] {
                    let parts = [&STREAM[..one], &STREAM[one..two], &STREAM[two..]];
                    let (text, events) = pass(&parts, hide);
                    assert_eq!(text, if hide { &*hidden } else { STREAM }, "{one} {two}");
                    let tokens = Tokens {
                        prompt: 3,
                        completion: 4,
                    };
                    assert_eq!(
                        (events.usage(), events.content_bytes()),
                        (Some(tokens), 5),
                        "{one} {two}"
                    );
                    assert!(events.is_done() && events.is_between_events());
                }
            }
        }
    }

    #[test]
    fn events_that_are_like_the_one_before_are_read_as_if_they_were_not() {
        let words = [
            "Hello",
            "",
            " there",
            "a\\nb",
            "\\\"",
            "x\",\"y\":\"z",
            "}",
            "\n",
            "\r",
            "data:",
            "ü",
        ];
        let shapes = [
            "data: {\"choices\":[{\"delta\":{\"content\":\"@\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"@\",\"refusal\":\"no\"}}],\"usage\":null}\n\n",
            "event: x\ndata:{\"text\":\"@\"}\r\nid: 7\r\n\r\n",
            "data: {\"text\":\"@\",\ndata: \"a\":1}\n\n",
            "data: {\"usage\":{\"prompt_tokens\":1,\"text\":\"@\"}}\n\n",
            "data: {\"name\":\"@\"}\n\n",
            "data: @\n\n",
            ": @\n\n",
            "data: [DONE]\n\n",
        ];
        let mut random = 7_u64;
        let mut any = |most: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % most
        };
        for _ in 0..300 {
            let (mut events, mut out) = (EventStream::new(true, None), VecDeque::new());
            let (mut content_bytes, mut usage, mut done) = (0, None, false);
            let mut template = 0;
            for _ in 0..40 {
                if any(4) == 0 {
                    template = any(shapes.len());
                }
                let event = shapes[template].replace('@', words[any(words.len())]);
                events.feed(Bytes::from(event.clone()), &mut out);
                let (_, alone) = pass(&[&event], true);
                content_bytes += alone.content_bytes();
                usage = alone.usage().or(usage);
                done |= alone.is_done();
                let read = (events.content_bytes(), events.usage(), events.is_done());
                assert_eq!(read, (content_bytes, usage, done), "{event:?}");
            }
        }
    }

    #[test]
    fn whole_events_go_out_at_once_and_without_a_copy() {
        let (mut events, mut out) = (EventStream::new(true, None), VecDeque::new());
        let part = Bytes::from_static(b"data: {}\n\ndata: {}\n\ndata: {");
        events.feed(part.clone(), &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].as_ptr(), part.as_ptr());
        assert_eq!(&out[0][..], b"data: {}\n\ndata: {}\n\n");
        assert!(!events.is_done());
    }

    #[test]
    fn a_hidden_event_is_not_lost_for_us_at_the_end_of_a_stream() {
        let (text, events) = pass(
            &["data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}"],
            true,
        );
        assert_eq!((&*text, events.usage().unwrap().prompt), ("", 1));
    }

    #[test]
    fn an_event_that_comes_byte_by_byte_is_not_copied_each_time() {
        let (mut events, mut out) = (EventStream::new(true, None), VecDeque::new());
        let byte = Bytes::from_static(b"x");
        let mut places = Vec::new();
        for _ in 0..MAX_PENDING_EVENT {
            events.feed(byte.clone(), &mut out);
            places.push(events.held.as_ptr());
        }
        places.dedup();
        assert!(places.len() < 50, "it was moved {} times", places.len());
        assert!(out.is_empty());
        events.feed(Bytes::from_static(b"\n"), &mut out);
        events.feed(Bytes::from_static(b"\ndata: [DONE]\n\n"), &mut out);
        assert!(events.is_done());
        let total: usize = out.iter().map(Bytes::len).sum();
        assert_eq!(total, MAX_PENDING_EVENT + 16);
    }

    #[test]
    fn an_endless_event_is_not_held() {
        let (mut events, mut out) = (EventStream::new(true, None), VecDeque::new());
        let part = Bytes::from(vec![b'x'; 100 * 1024]);
        for _ in 0..10 {
            events.feed(part.clone(), &mut out);
            assert!(events.held.len() <= MAX_PENDING_EVENT);
        }
        assert!(!events.is_between_events());
        events.feed(Bytes::from_static(b"\n\ndata: [DONE]\n\n"), &mut out);
        assert!(events.is_between_events() && events.is_done());
        let total: usize = out.iter().map(Bytes::len).sum();
        assert_eq!(total, 10 * part.len() + 16);
    }
}
