import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { ActionForm, Field, type FormEntry } from '../forms/forms.tsx';
import { Badge } from '../parts/badge.tsx';
import { Table } from '../parts/table.tsx';

type Explanation = Awaited<ReturnType<typeof explain>>;

/** The places that a refused request came from, as far as they are known. */
export interface RefusedFrom {
  readonly clientIp?: string | undefined;
  readonly origin?: string | undefined;
}

/**
 * A form that asks how a question about a key would be decided, and the rules one by one.
 * @param props.refusal the places that a refused request came from, which is explained at once
 */
export function Explain({ of, refusal }: { of: Key; refusal: RefusedFrom | undefined }) {
  const [explanation, setExplanation] = useState<Explanation>();
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const form = place.current?.querySelector('form');
    if (!refusal || !form) return;
    for (const name of ['origin', 'clientIp'] as const) {
      const field = form.querySelector<HTMLInputElement>(`[name="${name}"]`);
      if (field) field.value = refusal[name] ?? '';
      field?.focus();
    }
    form.requestSubmit();
  }, [refusal]);
  const run = async (entry: FormEntry) => {
    setExplanation(await explain(of, entry));
    return undefined;
  };
  return (
    <div ref={place}>
      <ActionForm isQuestion label="Explain a question" action="Explain" run={run} message="">
        <Field label="Permissions" hint="such as files.read AND files.write" name="permissions" />
        <Field label="Client's address" hint="for a key with allowed addresses" name="clientIp" />
        <Field label="Web page's origin" hint="for a key with allowed origins" name="origin" />
        <Field label="Cost" hint="in credits; empty = 1" name="cost" inputMode="numeric" pattern="\d{1,9}" />
      </ActionForm>
      {explanation && (
        <>
          <p role="status">
            <Badge kind={explanation.valid ? 'good' : 'bad'}>{explanation.code}</Badge>{' '}
            {explanation.rules.find(({ passed }) => !passed)?.detail} Nothing was consumed.
          </p>
          <Table
            label="Rules"
            rows={explanation.rules}
            id={({ rule, detail }) => `${rule} ${detail}`}
            empty=""
            columns={[
              { title: 'Rule', narrow: 'first', cell: ({ rule }) => rule },
              {
                title: 'Result',
                narrow: 'beside',
                cell: ({ passed }) => (
                  <Badge kind={passed ? 'good' : 'bad'}>{passed ? 'passed' : 'failed'}</Badge>
                ),
              },
              { title: 'Why', cell: ({ detail }) => <bdi>{detail}</bdi> },
            ]}
          />
        </>
      )}
    </div>
  );
}

function explain({ keyId, apiId }: Key, entry: FormEntry) {
  const [permissions, cost] = [entry('permissions'), entry('cost')];
  const [clientIp, origin] = [entry('clientIp'), entry('origin')];
  return call('keys.explain', {
    ...{ keyId, apiId },
    ...(permissions === '' ? {} : { permissions }),
    ...(clientIp === '' ? {} : { clientIp }),
    ...(origin === '' ? {} : { origin }),
    ...(cost === '' ? {} : { cost: Number(cost) }),
  });
}
