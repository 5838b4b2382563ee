import { IpRanges, rangesText, wordsOf } from '#shared/lang/ip-ranges.ts';

/** Ranges of IPv4 that are not globally reachable, or have no single holder (IANA special-purpose registry, RFC 6890). */
const SPECIAL_V4 = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12'],
  ...['192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15'],
  ...['198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4'],
];
/** Global unicast addresses of IPv6 (RFC 4291), and what lies among them without being reachable by itself. */
const GLOBAL_V6 = ['2000::/3'];
const SPECIAL_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

/** Decides to which addresses the control plane may connect for somebody else. */
export class AddressRules {
  readonly #special = new IpRanges(rangesText([...SPECIAL_V4, ...SPECIAL_V6]));
  readonly #global = new IpRanges(rangesText(GLOBAL_V6));
  readonly #networks: IpRanges;

  /** @param networks ranges that are allowed besides public addresses */
  constructor(networks: readonly string[]) {
    this.#networks = new IpRanges(rangesText(networks));
  }

  /** Tells whether an address is public, or in the networks of the configuration. */
  allows(address: string): boolean {
    const words = wordsOf(address);
    if (words === undefined) return false;
    if (this.#networks.has(address)) return true;
    if (this.#special.has(address)) return false;
    return words.length === 1 || this.#global.has(address);
  }

  /**
   * Returns the rule that an address breaks, for a message; undefined = it may be used.
   * @param isPlain true for a connection without TLS
   */
  addressFault(address: string, isPlain: boolean): string | undefined {
    if (!this.allows(address)) return `${address} is not a public address, and not in WEBHOOK_NETWORKS`;
    if (isPlain && !this.#networks.has(address))
      return 'http:// is allowed only for addresses in WEBHOOK_NETWORKS';
    return undefined;
  }

  /** Returns the same for the host of a URL if it is an address; undefined for a name. */
  hostFault({ hostname, protocol }: URL): string | undefined {
    const isName = !hostname.startsWith('[') && wordsOf(hostname) === undefined;
    return isName ? undefined : this.addressFault(hostname.replace(/^\[|\]$/g, ''), protocol === 'http:');
  }
}
