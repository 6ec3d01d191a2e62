//! Commands and shells in an instance.

use crate::support::{EngineFixture, eventually};
use estrade_runtime::Runtime as _;
use estrade_runtime::{
    Engine, InstanceId, OutputFrames, OutputStream, Probe, ShellSpec, TerminalSize,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const LIMIT: Duration = Duration::from_secs(20);

/// Whether a process of the instance has this in its command line.
async fn runs(engine: &Engine, id: &InstanceId, word: &str) -> bool {
    let look = "import glob, os, sys
for path in glob.glob('/proc/[0-9]*/cmdline'):
    if path.split('/')[2] != str(os.getpid()) and sys.argv[1] in open(path).read(): sys.exit(0)
sys.exit(1)";
    let end = engine.run_command(id, words(&["python3", "-c", look, word]), LIMIT);
    end.await.unwrap().code == 0
}

/// Reads until this was shown.
async fn read_until(shell: &mut (impl AsyncReadExt + Unpin), expected: &str) -> String {
    let mut shown = String::new();
    let reading = async {
        let mut buffer = [0; 1024];
        while !shown.contains(expected) {
            let read = shell.read(&mut buffer).await.unwrap();
            assert_ne!(read, 0, "ended: {shown}");
            shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    let read = tokio::time::timeout(LIMIT, reading).await;
    assert!(read.is_ok(), "{expected} was not shown: {shown}");
    shown
}

#[tokio::test]
async fn a_command_says_how_it_ended() {
    let fixture = EngineFixture::new();
    let instance = fixture
        .run(&fixture.python("import time; time.sleep(600)"))
        .await;
    let run = |command: &[&str]| {
        fixture
            .engine
            .run_command(&instance.id, words(command), LIMIT)
    };
    let end = run(&["sh", "-c", "echo out; echo err >&2; exit 3"])
        .await
        .unwrap();
    assert_eq!(end.code, 3);
    assert!(end.output.contains("out\n") && end.output.contains("err\n"));
    let end = run(&["sh", "-c", "yes | head -c 1000000"]).await.unwrap();
    assert_eq!((end.code, end.output.len()), (0, 4096));
    assert_ne!(run(&["no-such-program"]).await.map_or(1, |end| end.code), 0);
    let slow = fixture.engine.run_command(
        &instance.id,
        words(&["sleep", "60"]),
        Duration::from_millis(500),
    );
    assert!(matches!(
        slow.await,
        Err(estrade_runtime::Error::TimedOut(_))
    ));

    let probe = Probe::Command(words(&["test", "-e", "/ready"]));
    let ready = fixture
        .engine
        .wait_until_ready(&instance, &probe, Duration::from_secs(1));
    assert!(
        ready
            .await
            .unwrap_err()
            .to_string()
            .contains("ended with 1")
    );
    run(&["touch", "/ready"]).await.unwrap();
    fixture
        .engine
        .wait_until_ready(&instance, &probe, LIMIT)
        .await
        .unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn a_shell_at_a_terminal() {
    let fixture = EngineFixture::new();
    let instance = fixture
        .run(&fixture.python("import time; time.sleep(600)"))
        .await;
    let spec = ShellSpec {
        command: words(&["bash", "--norc"]),
        terminal: Some(TerminalSize {
            columns: 91,
            rows: 17,
        }),
    };
    let mut shell = fixture
        .engine
        .open_shell(&instance.id, &spec)
        .await
        .unwrap();
    shell
        .write_all(b"echo $((6*7))=$TERM; stty size\n")
        .await
        .unwrap();
    let shown = read_until(&mut shell, "17 91").await;
    assert!(shown.contains("42=xterm-256color"), "{shown}");
    let control = shell.control();
    control.resize(120, 40).await.unwrap();
    shell.write_all(b"stty size\n").await.unwrap();
    read_until(&mut shell, "40 120").await;
    // Bytes that a log's framing would take for its own.
    shell
        .write_all(b"printf '\\1\\0\\0\\0\\0\\0\\0\\1'; echo after\n")
        .await
        .unwrap();
    read_until(&mut shell, "after\r\n").await;
    assert_eq!(control.exit_code().await.unwrap(), None);
    shell.write_all(b"exit 5\n").await.unwrap();
    let mut rest = Vec::new();
    shell.read_to_end(&mut rest).await.unwrap();
    eventually("its code", || async {
        control.exit_code().await.unwrap() == Some(5)
    })
    .await;
    control.resize(1, 1).await.unwrap();
    drop(shell);
    fixture.clean().await;
}

/// Without a terminal: streams apart, bytes as they are, and an end of standard input.
#[tokio::test]
async fn a_command_between_pipes() {
    let fixture = EngineFixture::new();
    let instance = fixture
        .run(&fixture.python("import time; time.sleep(600)"))
        .await;
    let open = async |line: &str| {
        let spec = ShellSpec {
            command: words(&["sh", "-c", line]),
            terminal: None,
        };
        fixture
            .engine
            .open_shell(&instance.id, &spec)
            .await
            .unwrap()
    };
    let shell = open("cat; echo err >&2; exit 5").await;
    let control = shell.control();
    let (output, mut input) = tokio::io::split(shell);
    let sent: Vec<u8> = (0..200_000_u32).map(|it| it.to_le_bytes()[0]).collect();
    let sending = async {
        input.write_all(&sent).await.unwrap();
        input.shutdown().await.unwrap();
    };
    let reading = async {
        let mut frames = OutputFrames::new(output, 1000);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some((stream, piece)) = frames.next().await.unwrap() {
            match stream {
                OutputStream::Stdout => out.extend_from_slice(&piece),
                OutputStream::Stderr => err.extend_from_slice(&piece),
            }
        }
        (out, err)
    };
    let both = async { tokio::join!(sending, reading) };
    let ((), (out, err)) = tokio::time::timeout(LIMIT, both).await.unwrap();
    assert!(out == sent, "{} of {} bytes", out.len(), sent.len());
    assert_eq!(err, b"err\n");
    eventually("its code", || async {
        control.exit_code().await.unwrap() == Some(5)
    })
    .await;
    // What it writes at once comes in the frame of its process id.
    for _ in 0..10 {
        let mut frames = OutputFrames::new(open("echo at once").await, 1000);
        let mut shown = Vec::new();
        while let Some((_, piece)) = frames.next().await.unwrap() {
            shown.extend_from_slice(&piece);
        }
        assert_eq!(shown, b"at once\n");
    }
    // Who leaves ends it with everything that it has started.
    let shell = open("sleep 4712; echo").await;
    eventually("it runs", || runs(&fixture.engine, &instance.id, "4712")).await;
    drop(shell);
    eventually("it is gone", || async {
        !runs(&fixture.engine, &instance.id, "4712").await
    })
    .await;
    fixture.clean().await;
}

#[tokio::test]
async fn a_shell_that_is_left_is_hung_up() {
    let fixture = EngineFixture::new();
    let instance = fixture
        .run(&fixture.python("import time; time.sleep(600)"))
        .await;
    let spec = ShellSpec {
        command: words(&["bash", "--norc"]),
        terminal: Some(TerminalSize {
            columns: 80,
            rows: 24,
        }),
    };
    let mut shell = fixture
        .engine
        .open_shell(&instance.id, &spec)
        .await
        .unwrap();
    shell
        .write_all(b"echo be''gun; sleep 4711\n")
        .await
        .unwrap();
    read_until(&mut shell, "begun").await;
    eventually("it runs", || runs(&fixture.engine, &instance.id, "4711")).await;
    drop(shell);
    for word in ["4711", "--norc"] {
        eventually("it is gone", || async {
            !runs(&fixture.engine, &instance.id, word).await
        })
        .await;
    }
    fixture.clean().await;
}

#[tokio::test]
async fn no_shell_in_what_does_not_run() {
    let fixture = EngineFixture::new();
    let instance = fixture.run(&fixture.spec(&["true"])).await;
    fixture.engine.wait_for_exit(&instance.id).await.unwrap();
    let spec = ShellSpec {
        command: words(&["sh"]),
        terminal: Some(TerminalSize {
            columns: 80,
            rows: 24,
        }),
    };
    let error = fixture
        .engine
        .open_shell(&instance.id, &spec)
        .await
        .err()
        .unwrap();
    assert!(error.is_conflict(), "{error}");
    fixture.clean().await;
}
