import { useEffect } from 'preact/hooks';
import { limitOfText, windowInWords } from '#shared/protocol/records/limit.ts';
import { call, events } from '../api/client.ts';
import { useLoad } from '../parts/loading.tsx';
import { Time } from '../parts/time.tsx';

const REFRESH_MS = 5000;
/** Parts of a limit from which on it is nearly used up, and used up. */
const NEAR = 0.8;

/** A limit with its use: the amount, a bar, and when it begins anew. */
export interface Meter {
  readonly name: string;
  readonly used: number;
  readonly of: number | undefined;
  readonly resetsAt?: number | undefined;
  readonly from: string;
}

/** The limits and credits of a customer or a key, with what is used of them now. */
export function Meters({ of }: { of: { readonly identityId: string } | { readonly keyId: string } }) {
  const load = async () =>
    metersOf(await ('keyId' in of ? call('keys.getAllowances', of) : call('identities.getAllowances', of)));
  const { data: meters, failure, reload } = useLoad(load, [JSON.stringify(of)], REFRESH_MS);
  useEffect(() => {
    events.addEventListener('changed', reload);
    return () => events.removeEventListener('changed', reload);
  }, []);
  if (meters === undefined && !failure)
    return (
      <div aria-busy="true">
        <div class="skeleton" />
      </div>
    );
  if (!meters?.length) return null;
  return (
    <dl class="tiles" aria-label="Limits that apply now">
      {meters.map((meter) => (
        <MeterTile key={meter.name} of={meter} />
      ))}
    </dl>
  );
}

type Allowances = Awaited<ReturnType<typeof call<'keys.getAllowances'>>>;

export function metersOf({ limits, concurrency, credits }: Allowances): readonly Meter[] {
  return [
    ...limits.map(({ name, per, limit, ...rest }) => ({
      ...rest,
      name: `${name} ${wordsOf(per)}`,
      of: limit,
    })),
    ...concurrency.map(({ name, limit, inUse, from }) => ({
      name: `${name} at once`,
      used: inUse,
      of: limit,
      from,
    })),
    ...(credits
      ? [{ name: 'credits left', used: credits.remaining, of: credits.of, from: credits.sharedBy }]
      : []),
  ];
}

/** Says in words what stands after the slash of a limit, such as "a minute" for `1m`. */
const wordsOf = (per: string) =>
  windowInWords(limitOfText(`1/${per}`, () => ({})) ?? {}).replace(/^each calendar /, 'this ');

/** The bar of a meter, which says by its colour when little or nothing is left. */
export function Bar({ of: { name, used, of } }: { of: Meter }) {
  if (of === undefined) return null;
  const share = Math.min(1, used / Math.max(1, of));
  const isLimit = name !== 'credits left';
  const tone = isLimit && share === 1 ? 'over' : isLimit && share >= NEAR ? 'near' : '';
  return (
    <svg class={`meter ${tone}`} viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">
      <rect width={share} height="1" />
    </svg>
  );
}

function MeterTile({ of: meter }: { of: Meter }) {
  const { name, used, of, resetsAt, from } = meter;
  return (
    <div class="panel">
      <dt>{name}</dt>
      <dd>
        {used.toLocaleString()} {of !== undefined && <small>of {of.toLocaleString()}</small>}
        <Bar of={meter} />
        <small class="under">
          {from
            .replace(/^role:/, 'plan ')
            .replace('identity', 'of the customer')
            .replace(/^key$/, 'of the key')}
          {resetsAt !== undefined && (
            <>
              , resets <Time at={resetsAt} />
            </>
          )}
        </small>
      </dd>
    </div>
  );
}
