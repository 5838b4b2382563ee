/** Lines behind the first of a client's request, with the first line's version where that is not 1.1. */
interface Shape {
  readonly verifyKey: string;
  readonly authz?: string;
  readonly version?: string;
}

const AUTHORIZED = 'Authorization: Bearer good';
const TYPED = 'Content-Type: application/json';
const SHAPES = {
  'Python requests': {
    verifyKey: `Host: a:1\nUser-Agent: python-requests/2.34.2\nAccept-Encoding: gzip, deflate\nAccept: */*\nConnection: keep-alive\n${TYPED}\nContent-Length: 15\n\n{"key": "good"}`,
    authz: `Host: a:1\nUser-Agent: python-requests/2.34.2\nAccept-Encoding: gzip, deflate\nAccept: */*\nConnection: keep-alive\n${AUTHORIZED}\n\n`,
  },
  'Python http.client': {
    verifyKey: `Host: a:1\nAccept-Encoding: identity\nContent-Length: 15\n${TYPED}\n\n{"key": "good"}`,
  },
  'Java HttpClient': {
    verifyKey: `Connection: Upgrade, HTTP2-Settings\nContent-Length: 14\nHost: a:1\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\nUpgrade: h2c\nUser-Agent: Java-http-client/17.0.15\n${TYPED}\n\n{"key":"good"}`,
    authz: `Connection: Upgrade, HTTP2-Settings\nContent-Length: 0\nHost: a:1\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\nUpgrade: h2c\nUser-Agent: Java-http-client/17.0.15\n${AUTHORIZED}\n\n`,
  },
  'Java HttpClient, HTTP/1.1': {
    verifyKey: `Content-Length: 14\nHost: a:1\nUser-Agent: Java-http-client/17.0.15\n${TYPED}\n\n{"key":"good"}`,
    authz: `Content-Length: 0\nHost: a:1\nUser-Agent: Java-http-client/17.0.15\n${AUTHORIZED}\n\n`,
  },
  'Java HttpURLConnection': {
    verifyKey: `${TYPED}\nUser-Agent: Java/17.0.15\nHost: a:1\nAccept: text/html, image/gif, image/jpeg, */*; q=0.2\nConnection: keep-alive\nContent-Length: 14\n\n{"key":"good"}`,
  },
  'Ruby Net::HTTP': {
    verifyKey: `${TYPED}\nAccept-Encoding: gzip;q=1.0,deflate;q=0.6,identity;q=0.3\nAccept: */*\nUser-Agent: Ruby\nHost: a:1\nContent-Length: 14\n\n{"key":"good"}`,
  },
  'LWP, at first': {
    verifyKey: `TE: deflate,gzip;q=0.3\nKeep-Alive: 300\nConnection: Keep-Alive, TE\nHost: a:1\nUser-Agent: libwww-perl/6.68\nContent-Length: 14\n${TYPED}\n\n{"key":"good"}`,
    authz: `TE: deflate,gzip;q=0.3\nKeep-Alive: 300\nConnection: Keep-Alive, TE\n${AUTHORIZED}\nHost: a:1\n\n`,
  },
  'LWP, later': {
    verifyKey: `TE: deflate,gzip;q=0.3\nConnection: TE\nHost: a:1\nContent-Length: 14\n${TYPED}\n\n{"key":"good"}`,
    authz: `TE: deflate,gzip;q=0.3\nConnection: TE\n${AUTHORIZED}\nHost: a:1\n\n`,
  },
  'LWP without keep-alive': {
    verifyKey: `TE: deflate,gzip;q=0.3\nConnection: TE, close\nHost: a:1\nContent-Length: 14\n${TYPED}\n\n{"key":"good"}`,
    authz: `TE: deflate,gzip;q=0.3\nConnection: TE, close\n${AUTHORIZED}\nHost: a:1\n\n`,
  },
  'a stream of PHP': {
    verifyKey: `Host: a:1\nConnection: close\nContent-Length: 14\n${TYPED}\n\n{"key":"good"}`,
    authz: `Host: a:1\nConnection: close\n${AUTHORIZED}\n\n`,
  },
  'ab -k': {
    version: '1.0',
    verifyKey: `Connection: Keep-Alive\nContent-length: 15\nContent-type: application/json\nHost: a:1\nUser-Agent: ApacheBench/2.3\nAccept: */*\n\n{"key":"good"}\n`,
    authz: `Connection: Keep-Alive\n${AUTHORIZED}\nHost: a:1\nUser-Agent: ApacheBench/2.3\nAccept: */*\n\n`,
  },
  ab: {
    version: '1.0',
    verifyKey: `Content-length: 15\nContent-type: application/json\nHost: a:1\nAccept: */*\n\n{"key":"good"}\n`,
    authz: `${AUTHORIZED}\nHost: a:1\nUser-Agent: ApacheBench/2.3\nAccept: */*\n\n`,
  },
  'nginx as it comes': {
    version: '1.0',
    verifyKey: `Host: keyfence\nConnection: close\nContent-Length: 14\n${TYPED}\n\n{"key":"good"}`,
    authz: `X-Original-URI: /a?b\nHost: keyfence\nConnection: close\n${AUTHORIZED}\n\n`,
  },
} satisfies Record<string, Shape>;

/** Requests as clients were seen to send them, by the client and what it asks: each the head, and the body if there is one. */
export const CLIENT_SHAPES: Readonly<Record<string, readonly [head: string, body: string]>> =
  Object.fromEntries(
    Object.entries<Shape>(SHAPES).flatMap(([client, { verifyKey, authz, version = '1.1' }]) => {
      const post = [`${client}, verifyKey`, `POST /v1/keys.verifyKey HTTP/${version}\n${verifyKey}`];
      const get = [`${client}, /authz/`, `GET /authz/forward-auth HTTP/${version}\n${authz}`];
      return [post, ...(authz === undefined ? [] : [get])].map(([name, text = '']) => {
        const end = text.indexOf('\n\n') + 2;
        return [name, [text.slice(0, end).replaceAll('\n', '\r\n'), text.slice(end)]];
      });
    }),
  );
