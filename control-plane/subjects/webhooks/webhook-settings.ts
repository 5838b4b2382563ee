import { integer, type Setting } from '#shared/process/load-config.ts';
import { rangeFault } from '#shared/rules/ip-ranges.ts';

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

const networks: Setting<readonly string[]> = {
  parse(value) {
    const ranges = value
      .split(',')
      .map((range) => range.trim())
      .filter(Boolean);
    for (const range of ranges) {
      const fault = rangeFault(range);
      if (fault !== undefined) throw new Error(`"${range}" ${fault}`);
    }
    return ranges;
  },
  default: '',
  rule: 'comma-separated addresses and networks',
  help: 'Addresses and networks besides public ones to which webhooks may be sent, such as `10.0.0.0/8`. Only there a URL may begin with http://',
};

export const webhookSettings = {
  WEBHOOK_NETWORKS: networks,
  WEBHOOK_QUEUE_MAX: integer(100, 10_000_000, 'events', 100_000).help(
    'Number of events that wait for one webhook endpoint; about 1 KiB of Redis each. A full queue drops its oldest events',
  ),
  WEBHOOK_EXPIRING_DAYS: days,
};
