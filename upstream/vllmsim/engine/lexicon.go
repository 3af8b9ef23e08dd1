package engine

import "strings"

// lexicon returns the choices for each word of a sentence. The words are in testdata/corpus.txt, so most are one or two tokens.
func lexicon() [8][]string {
	split := func(list string) []string { return strings.Split(list, ",") }
	return [8][]string{
		split("the,every,some,this,our,another,that"),
		split("quiet,careful,old,young,gentle,brave,clever,patient,curious,tired,honest,famous,distant,ancient,humble,stubborn"),
		split("river,reader,ship,gardener,teacher,engineer,painter,baker,captain,farmer,sailor,doctor,fox,merchant,clerk,writer,robot,village"),
		split("carries,opens,follows,remembers,builds,mixes,gathers,watches,repairs,answers,measures,discovers,borrows,imagines,polishes,celebrates"),
		split("a,the,that,one,another,this"),
		split("bright,deep,fresh,silver,golden,empty,hidden,broken,frozen,secret,simple,northern,strange,purple,heavy,wooden,stone,copper"),
		split("tower,letter,bridge,star,road,signal,engine,gate,bell,mountain,lake,garden,library,melody,planet,kettle,festival,harbour,morning,answer"),
		split("before,after,again,slowly,today,together,quietly,at night,in winter,in the spring,behind the house,for a reason,without help,step by step"),
	}
}
