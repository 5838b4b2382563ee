import { createSign, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { request } from 'undici';

/** Who signs reports as GitHub does, with a real key. */
export class Reporter {
  readonly identifier: string;
  readonly #privateKey: KeyObject;
  readonly publicPem: string;

  constructor(identifier: string, namedCurve = 'prime256v1') {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve });
    this.identifier = identifier;
    this.#privateKey = privateKey;
    this.publicPem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
  }

  sign(body: string): string {
    return createSign('sha256').update(body).sign(this.#privateKey, 'base64');
  }

  /** What `publish` takes of the same public key under another name. */
  named(identifier: string): Pick<Reporter, 'identifier' | 'publicPem'> {
    return { identifier, publicPem: this.publicPem };
  }

  /** The headers of a report with this body. */
  headers(body: string): Record<string, string> {
    return {
      'content-type': 'application/json',
      'github-public-key-identifier': this.identifier,
      'github-public-key-signature': this.sign(body),
    };
  }
}

/** Writes GitHub's document of these public keys. */
export function publish(
  file: string,
  reporters: readonly Pick<Reporter, 'identifier' | 'publicPem'>[],
): void {
  const keys = reporters.map(({ identifier, publicPem }, i) => ({
    ...{ key_identifier: identifier, key: publicPem, is_current: i === 0 },
  }));
  writeFileSync(file, JSON.stringify({ public_keys: keys }));
}

/** The body of a report: a URL for each secret. */
export const bodyOf = (secrets: readonly string[], more: object = {}): string =>
  JSON.stringify(
    secrets.map((token, i) => ({
      ...{ token, type: 'shop_key', source: 'content' },
      ...{ url: `https://github.example/blob/1/${i}.txt`, ...more },
    })),
  );

export async function send(address: string, body: string, headers: Record<string, string>) {
  const {
    statusCode,
    body: answer,
    headers: answered,
  } = await request(`${address}/v1/leaks.report`, {
    ...{ method: 'POST', body, headers },
  });
  return { status: statusCode, headers: answered, body: parsed(await answer.text()) };
}

// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
const parsed = (text: string): any => JSON.parse(text);
