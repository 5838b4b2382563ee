// The least that does the job on Rust's hyper, in one thread: JSON body, SHA-256, a map, JSON answer.
// `hyper_peer PORT KEYS_FILE`
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::{body::Incoming, server::conn::http1, service::service_fn, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{collections::HashMap, convert::Infallible, rc::Rc};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Question<'a> {
    key: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict<'a> {
    valid: bool,
    code: &'a str,
    key_id: &'a str,
    api_id: &'a str,
    enabled: bool,
    meta: HashMap<(), ()>,
}

struct Key {
    id: String,
    enabled: bool,
}

type Keys = HashMap<[u8; 32], Key>;

async fn answer(request: Request<Incoming>, keys: Rc<Keys>) -> Result<Response<Full<Bytes>>, Infallible> {
    let refused = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        Ok(response)
    };
    if request.method() != hyper::Method::POST || request.uri().path() != "/v1/keys.verifyKey" {
        return refused(StatusCode::NOT_FOUND, "");
    }
    let Ok(body) = Limited::new(request.into_body(), 65536).collect().await else {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "");
    };
    let body = body.to_bytes();
    let Ok(Question { key }) = serde_json::from_slice(&body) else {
        return refused(StatusCode::BAD_REQUEST, "body: must be JSON");
    };
    let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let text = match keys.get(&digest) {
        Some(Key { id, enabled }) => serde_json::to_vec(&Verdict {
            valid: *enabled,
            code: "VALID",
            key_id: id,
            api_id: "bench",
            enabled: *enabled,
            meta: HashMap::new(),
        })
        .unwrap_or_default(),
        None => br#"{"valid":false,"code":"NOT_FOUND"}"#.to_vec(),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let keys: Keys = std::fs::read_to_string(&arguments[2])?
        .lines()
        .enumerate()
        .map(|(i, key)| (Sha256::digest(key.as_bytes()).into(), Key { id: format!("key_{i}"), enabled: true }))
        .collect();
    let keys = Rc::new(keys);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::bind(("127.0.0.1", arguments[1].parse::<u16>()?)).await?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let keys = keys.clone();
            tokio::task::spawn_local(async move {
                let service = service_fn(move |request| answer(request, keys.clone()));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            });
        }
    })
}
