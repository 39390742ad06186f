"""The prose of docs/analysis.md: what is measured and what that cannot show. Results are told by `analyse_report`."""

from __future__ import annotations

HEAD = """\
# Analysis: where the models look, and whether that is why they say it

Written whole by `python tools/analyse.py{arguments}`; change the tool, not this page. What each measure means, and
why it is made so, stands in the docstrings of `caption/analysis`.

**Protocol.** {scenes} scenes of the Shapes test split. Each model is asked about the captions it writes itself,
with the search it was saved with; the end word is left out. Hard attention reads the expectation under α.
{starts}
In brackets: 95 % intervals by bootstrap over scenes, since the words of one scene succeed and fail together. They tell
what other scenes would have given, not what another training would. *Naming words* are colours and shapes; "above",
"below", "left" and "right" are *relations*; the rest are *other words*. Differences are paired, word by word.

## In short
"""

STARTS = {
    "blind": """The LSTM of {names} starts from a learned constant: all it knows of an image, it has looked at.""",
    "told": """The LSTM of {names} starts from the image: it knows something of it before it looks.""",
}

GROUNDING = """
## Does it look at what it names?

The pointing game: is the centre of the most attended cell, at the last word of a name ("red **circle**"), in the
box of that object? Naming what is not there is a miss. Mass: the share of α inside the box. A map that knows the
image and the word is held against maps that do not: the model's own for another word of the caption, or for the
same step of another image; a Gaussian around the middle, σ = {sigma:.2f} of the side, fitted to the boxes of
training scenes; and α = 1/L. Writing the captions and measuring all of this took {speed}.
"""

MAPS = """
H[α] in nats (log L = {most:.2f}); change: the share of α that moves from one word to the next; hardly looked at:
the share of regions whose coverage Σ_t α[t,i] is below {unseen}, over all words of a caption.
"""

FAITHFUL = """
## Is that why it says it?

For each word, regions are hidden from the context of its step in some order (deletion), or shown in that order with
all others hidden (insertion), and p(word) is followed. The words before, the state and the gate stay. Area: the
mean height of the curve; an order that knows what the word depends on has a small area under deletion and a large
one under insertion. Two meanings of hiding: a region is *removed*, and the others share its α; or *replaced* in the
average by the mean region of training scenes, so that no other is read more than before.

The orders: **α**; **random**, the mean of three draws; **gradient**, ‖∂ log p/∂a_i‖; **gradient x input**,
a_i·∂ log p/∂a_i; **gradient of hiding**, by how much log p falls to first order as the region is hidden, α_i g·(a_i −
what stands in its place) with g = ∂ log p/∂z; and **occlusion**, by how much it does fall when the region is hidden
alone, which is no estimate.

![Deletion and insertion curves of naming words]({picture})

The figure: naming words; bands are 95 % intervals; the axis of regions is stretched at its start.
In the tables, the last column is how many nats log p has lost after the first {hidden} regions. α is called faithful on
this page if it beats random orders in all four tests, and in each goes at least {nearly} % of the way from there to the
best order tried, mean area by mean area. That share is a convention, set after the first numbers were seen; where α is
itself the best it is 100 %, which says nothing of orders that were not tried. Orders ahead of α are therefore named.
"""

BY_CLASS = """
By class of word: the probability as it was said, the probability with nothing to read (all regions removed, z = 0),
and the areas under deletion by α and at random (removed).
"""

PERMUTED = """
## What if it looked elsewhere?

The word is said again with other weights at its step: α permuted over the regions (ten times), uniform, that of
another word of the caption, that of another image at the same step. Fall of log p in nats; distance: total
variation between the two distributions over the next word; changed: how often another word becomes the likeliest.
"""

EXCHANGED = """
The same, with the outcome told beforehand: in "a red circle above a blue square", "red" is said again with the map of
"blue", which should make it "blue" if the colour is read where the map lies. All ordered pairs of different colours,
and of different shapes, of one caption. The other's map permuted (ten times) is as sharp, but lies nowhere in
particular. Columns: how often the other word, and how often the word itself, is the likeliest; and log p of the other
less that of the word itself, in nats.
"""

AGREE = """
## Do two models look at the same places?

Both are fed the captions of the first. Divergence: Jensen-Shannon, in bits; overlap: Σ_i min(α_i, α'_i); rank
correlation: Spearman's; same cell: both maxima in one cell. Beside it, what the second model's map of another word,
or of another image, would give.
"""

LIMITS = """
## What this does not show

- **Beating a random order is a low bar.** α is the factor with which a region enters the context, so hiding large α
  first changes the context most almost by construction. That the *word* then goes is what is found.
- **Not all rivals are independent.** In z = Σ α_i a_i, the gradient with respect to a_i is α_i times one and the same
  vector, and what the score adds: as an order it is nearly α. Gradient x input, the gradient of hiding and occlusion
  ask what a region says for this word; these are the competition that counts. They ask about one region at a time.
- **Hidden inputs are inputs the model was not trained on.** No model was trained again without the regions, so a word
  may fall because the context is strange. With everything removed z is 0; with everything replaced it is an ordinary
  vector. Where the two tables agree, strangeness is not what they show.
- **A region is not a place.** Its vector sees beyond its cell (38 of 64 pixels in the bundled models). Hiding it
  hides what the decoder reads there, not what the image shows there.
- **Neighbours stand in for each other.** When a region is removed, α goes to others, which often hold the same
  object: occlusion and the gradient of hiding, which ask about one at a time, do not see that, and their plateaus in
  the figure are objects of which a part was left. When regions are replaced, no other is read any more than before,
  and the orders are held against each other without this.
- **One step is asked at a time.** A word that does not need its look may still need what earlier words looked at.
- **No other α was searched for.** That permuted weights hurt does not show that this α is the only one that would
  do (Wiegreffe and Pinter 2019, "Attention is not not Explanation").
- **Intervals are not corrected for their number.** Of twenty comparisons without a difference, one would show one. And
  where all words agree, the bootstrap has nothing to vary: [100, 100] over n scenes leaves room for about 3/n.
- **These scenes are small and clean**, and words name what one place shows. Captions of photos name scenes, acts and
  things that are not in one place; nothing here says that attention is the reason for those words.
- **One training each.** Two trainings of one configuration may lie farther apart than these intervals;
  `docs/log.md` has a case. And `shapes-hard` started from a soft model: that the two agree is no agreement of
  independent models.

## In Python

```python
import caption
from caption.analysis.faithfulness import erase
from caption.analysis.interchange import interchange
from caption.analysis.permutation import permute

captioner, scene = caption.load("demo/best.ckpt"), "demo/shapes/images/test_000001.png"
erasure = erase(captioner, scene)
erasure.area("deletion", "attention")  # one number per word of erasure.words
permute(captioner, scene).falls["permuted"]
interchange(captioner, scene, ["red", "green", "blue"]).follows["of the other"]
```
"""
