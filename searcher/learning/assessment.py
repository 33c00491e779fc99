"""x"""
from syncswitch.searcher.strategies.adaptive.assessment import Assessment
class LearningAssessment(Assessment):
    def __init__(self, strategy, finished, uses_left=1):
        super().__init__(strategy, finished, uses_left)
    def good_probability(self, percent: float) -> float:
        return float(self._outlook.good_probabilities[self._grid.index(percent)])
    def answer(self):
        return self._decided()
def next_use(strategy, finished, uses_left):
    return LearningAssessment(strategy, finished, uses_left).decision()
