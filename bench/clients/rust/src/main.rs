//! Asks a verifier again and again: rust_clients <ureq|reqwest> <verifyKey|authz> <base> <key> <count>

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, endpoint, base, key, count] = &arguments[..] else {
        panic!("rust_clients <ureq|reqwest> <verifyKey|authz> <base> <key> <count>");
    };
    let count: usize = count.parse().expect("a count");
    let body = (endpoint == "verifyKey").then(|| format!("{{\"key\":\"{key}\"}}"));
    let url = match body {
        Some(_) => format!("{base}/v1/keys.verifyKey"),
        None => format!("{base}/authz/forward-auth"),
    };
    let bearer = format!("Bearer {key}");
    match client.as_str() {
        "ureq" => {
            let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).build().into();
            for _ in 0..count {
                // Its default is that another status than 2xx is an error.
                let mut response = match &body {
                    Some(body) => agent.post(&url).content_type("application/json").send(body),
                    None => agent.get(&url).header("Authorization", &bearer).call(),
                }
                .expect("an answer");
                assert_eq!(response.status(), 200);
                response.body_mut().read_to_vec().expect("a body");
            }
        }
        "reqwest" => {
            let client = reqwest::blocking::Client::builder().no_proxy().build().expect("a client");
            for _ in 0..count {
                let request = match &body {
                    Some(body) => client
                        .post(&url)
                        .header("Content-Type", "application/json")
                        .body(body.clone()),
                    None => client.get(&url).bearer_auth(key),
                };
                let response = request.send().expect("an answer");
                assert_eq!(response.status(), 200);
                response.bytes().expect("a body");
            }
        }
        _ => panic!("{client}: not one of these"),
    }
}
