import { rangeFault } from '#shared/lang/ip-ranges.ts';
import { integer, list, type Setting } from '#shared/process/load-config.ts';

const DAYS_MAX = 365;

/** Days before a key's expiry, comma-separated; the largest first. */
const days: Setting<readonly number[]> = {
  parse(value) {
    const items = value === 'none' ? [] : value.split(',').map((item) => item.trim());
    if (items.some((item) => !/^[1-9]\d{0,2}$/.test(item) || Number(item) > DAYS_MAX))
      throw new Error(`"${value}" is not allowed`);
    return [...new Set(items.map(Number))].sort((a, b) => b - a);
  },
  default: '30,7,1',
  rule: `comma-separated integers 1..${DAYS_MAX} days, or none`,
  help: 'Days before the expiry of a key at which webhooks send `key.expiring`',
};

const networks = list(/^[0-9A-Fa-f.:/]{1,50}$/, 'comma-separated addresses and networks').help(
  'Addresses and networks besides public ones to which webhooks may be sent, such as `10.0.0.0/8`. Only there an endpoint may have an http:// URL',
);

export const webhookSettings = {
  WEBHOOK_NETWORKS: networks,
  WEBHOOK_QUEUE_MAX: integer(100, 10_000_000, 'events', 100_000).help(
    'Number of events that wait for one webhook endpoint; about 1 KiB of Redis each. A full queue loses its oldest events, which are counted',
  ),
  WEBHOOK_EXPIRING_DAYS: days,
};

/** Returns the faults of the settings. */
export function webhookFaults({
  WEBHOOK_NETWORKS,
}: {
  readonly WEBHOOK_NETWORKS: readonly string[];
}): string[] {
  return WEBHOOK_NETWORKS.flatMap((range) => {
    const fault = rangeFault(range);
    return fault === undefined ? [] : [`WEBHOOK_NETWORKS: ${range} ${fault}`];
  });
}
