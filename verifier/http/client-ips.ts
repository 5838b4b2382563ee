import { isIP } from 'node:net';
import { text } from '#shared/process/load-config.ts';
import type { TrustedProxies } from '#shared/process/trusted-proxies.ts';
import type { HeaderLines } from './credentials.ts';

/** The header to which each proxy on the way adds the address from which it got the request. */
const FORWARDED_FOR = 'x-forwarded-for';

export const clientIpSettings = {
  CLIENT_IP_HEADER: text('').help(
    "Header in which your gateway tells this verifier the client's address, such as `x-real-ip` or `x-forwarded-for`. Name one only if the gateway sets it in every request, whatever the client sent, as the recipes in deploy/gateways do. Of several addresses in X-Forwarded-For, the last one counts that is not in TRUSTED_PROXIES. If empty, the addresses of clients of HTTP gateways are unknown, and keys with `allowedIps` are refused there. Envoy over gRPC and proxy mode do not need it",
  ),
};

/** Returns the faults of the settings for addresses. */
export const clientIpFaults = ({
  CLIENT_IP_HEADER: name,
}: {
  readonly CLIENT_IP_HEADER: string;
}): string[] =>
  /^([A-Za-z0-9-]{1,29})?$/.test(name)
    ? []
    : ['CLIENT_IP_HEADER: must be the name of a header, of at most 29 letters, digits and `-`'];

/** The addresses of clients, from where this process, or somebody whom it trusts, knows them. */
export class ClientIps {
  /** Name of the header in which gateways tell the address, in lower case; `''` = none. */
  readonly header: string;
  readonly #trusted: TrustedProxies;

  constructor(header: string, trusted: TrustedProxies) {
    this.header = header.toLowerCase();
    this.#trusted = trusted;
  }

  /** Returns the address that a gateway tells in its headers; undefined = none, or more than one. */
  inHeaders(headers: HeaderLines): string | undefined {
    const lines = this.header === '' ? undefined : headers[this.header];
    if (lines === undefined || (lines.length > 1 && this.header !== FORWARDED_FOR)) return undefined;
    return this.inHeader(lines.join(','));
  }

  /** Returns the address in a value of the header; undefined = none. */
  inHeader(value: string): string | undefined {
    if (this.header === FORWARDED_FOR) return this.#lastIn(value);
    return addressIn(value);
  }

  /**
   * Returns the address of the client behind a connection.
   * @param address the other end's; undefined = it has none, or has hung up
   * @param forwardedFor its X-Forwarded-For, which counts only from a trusted proxy
   */
  behind(address: string | undefined, forwardedFor: string | undefined): string | undefined {
    if (forwardedFor === undefined || !this.#trusted.has(address)) return address;
    return this.#lastIn(forwardedFor);
  }

  /** Returns the last address that is not a trusted proxy's; the first one if all are. */
  #lastIn(list: string): string | undefined {
    let address: string | undefined;
    for (const item of list.split(',').reverse()) {
      address = addressIn(item);
      if (!this.#trusted.has(address)) break;
    }
    return address;
  }
}

function addressIn(value: string): string | undefined {
  const address = value.trim();
  return isIP(address) === 0 ? undefined : address;
}
