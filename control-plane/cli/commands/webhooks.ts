import { type Command, Option } from 'commander';
import type { Delivery, QueueState } from '../../redis/webhooks/deliveries.ts';
import type { WebhookEndpoint } from '../../redis/webhooks/endpoints.ts';
import { names } from '../arguments.ts';
import { CliError } from '../exit.ts';
import type { Session } from '../session.ts';
import { count, json, list, table, time } from '../terminal/output.ts';
import { confirm } from '../terminal/print-change.ts';
import { addPageOptions, printListing } from '../terminal/print-listing.ts';

/** An endpoint as the control plane returns it. */
type ShownEndpoint = WebhookEndpoint & QueueState & { readonly state: string };
interface TestOutcome {
  readonly delivered: boolean;
  readonly durationMs: number;
  readonly status?: number;
  readonly response?: string;
  readonly error?: string;
}

const NAME = ['--name <name>', 'a name for people'] as const;
const EVENTS = [
  '--events <types>',
  'types of events, such as key.disabled,key.expiring or key.*; default: all',
  names,
] as const;
const API_IDS = [
  '--api-ids <ids>',
  'only events of these APIs, such as billing,shop; default: all',
  names,
] as const;

/** Adds `keyfence webhooks …`. */
export function webhookCommands(program: Command, session: Session): void {
  const webhooks = program
    .command('webhooks')
    .description('webhooks: URLs that are told what happens to keys');
  addChanges(webhooks, session);
  addReading(webhooks, session);
  addSecret(webhooks, session);
  addDeliveries(webhooks, session);
}

function addChanges(webhooks: Command, session: Session): void {
  webhooks
    .command('create <url>')
    .description('create an endpoint and show its signing secret; the secret is never shown again')
    .option(...NAME)
    .option(...EVENTS)
    .option(...API_IDS)
    .action(async (url: string, fields: object) => {
      const endpoint = await session.call<ShownEndpoint & { secret: string }>('webhooks.createEndpoint', {
        ...{ url, ...fields },
      });
      const { endpointId, secret } = endpoint;
      session.print(endpoint, () => list({ endpointId, url, events: endpoint.events.join(' '), secret }));
      session.note('The signing secret cannot be shown again; `webhooks rotate-secret` replaces it.');
    });

  webhooks
    .command('update <endpointId>')
    .description('change the URL, the name, the events or the APIs of an endpoint')
    .option('--url <url>', 'where events are posted')
    .option(...NAME)
    .option(...EVENTS)
    .option(...API_IDS)
    .addOption(new Option('--clear <field...>', 'clear a field').choices(['name', 'apiIds']))
    .action(async (endpointId: string, { clear = [], ...fields }) => {
      const patch = { ...fields, ...Object.fromEntries(clear.map((field: string) => [field, null])) };
      if (Object.keys(patch).length === 0)
        throw new CliError('USAGE', 'nothing to change: give at least one field');
      const endpoint = await session.call('webhooks.updateEndpoint', { endpointId, ...patch });
      session.print(endpoint, () => `updated ${endpointId}`);
    });

  for (const [name, enabled, help] of [
    ['enable', true, 'send events to an endpoint again, first those that wait'],
    ['disable', false, 'send and queue nothing; what waits already waits on'],
  ] as const) {
    webhooks
      .command(`${name} <endpointId>`)
      .description(help)
      .action(async (endpointId: string) => {
        const endpoint = await session.call('webhooks.updateEndpoint', { endpointId, enabled });
        session.print(endpoint, () => `${name}d ${endpointId}`);
      });
  }

  webhooks
    .command('delete <endpointId>')
    .description('delete an endpoint with the events that wait for it')
    .option('--yes', 'do not ask')
    .action(async (endpointId: string, { yes }) => {
      await confirm(`delete ${endpointId} and the events that wait for it`, yes === true);
      const response = await session.call('webhooks.deleteEndpoint', { endpointId });
      session.print(response, () => `deleted ${endpointId}`);
    });
}

function addReading(webhooks: Command, session: Session): void {
  webhooks
    .command('get <endpointId>')
    .description('show an endpoint and what waits for it')
    .action(async (endpointId: string) => {
      const endpoint = await session.call<ShownEndpoint>('webhooks.getEndpoint', { endpointId });
      const { events, apiIds, createdAt, updatedAt, oldestAt, pausedUntil, formerSecretEndsAt, ...rest } =
        endpoint;
      session.print(endpoint, () =>
        list({
          ...{ ...rest, events: events.join(' '), apiIds: apiIds?.join(' ') },
          ...{ createdAt: time(createdAt), updatedAt: time(updatedAt), oldestAt: time(oldestAt) },
          ...{ pausedUntil: time(pausedUntil), formerSecretEndsAt: time(formerSecretEndsAt) },
        }),
      );
    });

  webhooks
    .command('list')
    .description('list all endpoints')
    .action(async () => {
      const response = await session.call<{ endpoints: ShownEndpoint[] }>('webhooks.listEndpoints');
      session.print(response, () =>
        table(response.endpoints, {
          endpointId: ({ endpointId }) => endpointId,
          state: ({ state }) => state,
          waiting: ({ waiting }) => count(waiting),
          lost: ({ dropped, dead }) => count(dropped + dead),
          events: ({ events }) => events.join(' '),
          url: ({ url }) => url,
        }),
      );
    });
}

function addSecret(webhooks: Command, session: Session): void {
  webhooks
    .command('rotate-secret <endpointId>')
    .description('replace the signing secret; for a day events are signed with both')
    .action(async (endpointId: string) => {
      const response = await session.call<{ secret: string; formerSecretEndsAt: number }>(
        'webhooks.rotateSecret',
        { endpointId },
      );
      const { secret, formerSecretEndsAt } = response;
      session.print(response, () => list({ secret, formerSecretEndsAt: time(formerSecretEndsAt) }));
    });

  webhooks
    .command('test <endpointId>')
    .description('send a test event at once, and say what came back')
    .action(async (endpointId: string) => {
      const response = await session.call<TestOutcome>('webhooks.test', { endpointId });
      const { delivered, durationMs, status, error, response: body } = response;
      session.print(response, () => list({ delivered, status, error, durationMs, response: body }));
      if (!delivered) session.end('NO');
    });
}

function addDeliveries(webhooks: Command, session: Session): void {
  const deliveries = webhooks
    .command('deliveries <endpointId>')
    .description('attempts to deliver events, the latest first')
    .addOption(new Option('--dead', 'only events that were given up'));
  addPageOptions(deliveries, 'attempts').action((endpointId: string, { dead, ...page }) => {
    const query = { ...page, endpointId, ...(dead ? { dead } : {}) };
    return printListing<Delivery>(session, 'webhooks.listDeliveries', 'deliveries', query, {
      time: (delivery) => time(delivery.time),
      deliveryId: ({ deliveryId }) => deliveryId,
      type: ({ type }) => type,
      result: ({ result }) => result,
      attempt: ({ attempt }) => attempt,
      answer: ({ status, error }) => status ?? error,
      next: ({ nextAt }) => time(nextAt),
      data: ({ event }) => json((event as { data?: object }).data),
    });
  });

  webhooks
    .command('redeliver <endpointId> <deliveryId>')
    .description('deliver the event of an attempt once more')
    .action(async (endpointId: string, deliveryId: string) => {
      const response = await session.call('webhooks.redeliver', { endpointId, deliveryId });
      session.print(response, () => `queued the event of ${deliveryId}`);
    });
}
