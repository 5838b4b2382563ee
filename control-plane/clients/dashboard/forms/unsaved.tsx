import { useLayoutEffect, useState } from 'preact/hooks';
import { LeaveQuestion } from '../parts/dialogs.tsx';

/** Edited forms, and what is shown only once, mark themselves, so that the page knows of all of them. */
const unsaved = () => [
  ...document.querySelectorAll<HTMLElement>('main form[data-edited], [data-unanswered]'),
];

/**
 * Follows the fragment of the address, and asks before it leaves a page with edits that were not saved. Also the browser
 * asks before it closes such a page.
 */
export function useHash() {
  const [hash, setHash] = useState(location.hash);
  const [target, setTarget] = useState<string>();
  // At once, so that no change of the address comes before it.
  useLayoutEffect(() => {
    const follow = ({ oldURL }: HashChangeEvent) => {
      if (unsaved().length === 0) return setHash(location.hash);
      setTarget(location.hash);
      history.replaceState(null, '', oldURL);
    };
    const close = (event: BeforeUnloadEvent) => unsaved().length > 0 && event.preventDefault();
    addEventListener('hashchange', follow);
    addEventListener('beforeunload', close);
    return () => {
      removeEventListener('hashchange', follow);
      removeEventListener('beforeunload', close);
    };
  }, []);
  const leave = () => {
    for (const { dataset } of unsaved()) {
      delete dataset['edited'];
      delete dataset['unanswered'];
    }
    location.hash = target ?? '';
    setTarget(undefined);
  };
  const question = target !== undefined && (
    <LeaveQuestion onLeave={leave} onStay={() => setTarget(undefined)} />
  );
  return { hash, question };
}
